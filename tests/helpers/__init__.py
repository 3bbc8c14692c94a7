"""Common code of test modules: files, servers, strategies, plug-in kinds."""
