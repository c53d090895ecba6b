"""The controller: looks at the evidence now and then, decides by the rules of `store.deciding`, and carries that out.

It lives in the host because it must be there whenever somebody talks, and because it is cheap: nothing is computed
here but counts. What costs something, a learning run, is asked for like any other.
"""
