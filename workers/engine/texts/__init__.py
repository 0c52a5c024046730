"""Texts to token ids: control tokens and templates are the checkpoint's, never a stranger's."""
