"""Objects on disk, in S3, on the hub and on the web, behind literal addresses; core.objectstore is its front door."""
