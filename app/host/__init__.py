"""The host: the one process that owns the model, and the client by which every other process reaches it.

One owner because weights are large and llama.cpp contexts belong to one thread; a process because a chat
window that closes, or dies, must take neither the model nor a reply that is being written with it. Nothing is
imported here: `mynah ask` imports only `app.host.client`, and pays for nothing else.
"""
