"""From a folder to a model on its device; what would be made up is refused."""
