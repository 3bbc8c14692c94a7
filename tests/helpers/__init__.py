"""What several test modules share: files, servers, strategies, plug-in kinds."""
