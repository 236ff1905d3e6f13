"""What the program is: its tree, its delegation, its source."""
