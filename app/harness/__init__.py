"""What stands around the model: memories and rules that reach its prompt, and checks on what it answers.

All of it is code without weights, so that it costs nothing where there are no items, and what it did can be told and
done again: the same items and the same question make the same prompt, the same reply the same verdict.
"""
