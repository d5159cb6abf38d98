"""Where tasks live: stores that store, and decide nothing."""
