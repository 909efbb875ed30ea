"""Settings for all tests."""

from hypothesis import settings

# The same examples every time, and none fails because the machine is busy.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
