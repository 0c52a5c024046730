"""What each family of checkpoints says about itself, read from its folder."""
