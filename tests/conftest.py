"""Settings that all tests share."""

import os

import hypothesis

hypothesis.settings.register_profile("default", deadline=None, max_examples=60, print_blob=True)
hypothesis.settings.register_profile("few", deadline=None, max_examples=8)
hypothesis.settings.register_profile("many", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
