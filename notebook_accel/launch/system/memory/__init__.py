"""Memory that several processes share without a name in the file system."""
