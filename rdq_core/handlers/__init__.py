"""How work is called: handlers under stable names, and what goes into and comes out of them."""
