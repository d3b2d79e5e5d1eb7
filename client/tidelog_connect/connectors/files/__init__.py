"""FilesSink and FilesSource: folders of files on any file system that Spark reads and writes."""
