"""What is not the main job, a folder for each: imports the core, is imported by none of it."""
