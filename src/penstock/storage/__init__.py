"""Files by path or URI: local files, object stores, and file systems that the user gives."""
