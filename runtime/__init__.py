"""Plans in service: catalog, predict API, HTTP front end and command line."""
