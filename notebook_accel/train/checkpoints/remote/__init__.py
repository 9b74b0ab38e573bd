"""Folders of remote stores, such as `s3://bucket/run`, through fsspec. Needs no torch."""
