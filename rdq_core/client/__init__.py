"""What applications use: `Rdq`, and what is built on it."""
