"""Teams, their members and the API tokens that machines use."""
