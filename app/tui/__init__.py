"""The chat in the terminal. It knows the service object and nothing below it."""
