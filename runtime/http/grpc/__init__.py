"""The inference protocol over gRPC: the same handlers, asked with messages of protobuf."""
