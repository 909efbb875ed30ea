"""Renders: a report goes in, text or one artefact comes out. Never measures or decides."""
