"""Settings that all tests share."""

import os

import hypothesis

# Machines are shared: how long an example takes says nothing of the code.
patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("default", max_examples=60, print_blob=True, **patient)
hypothesis.settings.register_profile("few", max_examples=8, **patient)
hypothesis.settings.register_profile("many", max_examples=1000, **patient)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
