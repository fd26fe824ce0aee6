"""How production names its static files: each by a fingerprint of what is in it, and so do scripts their imports.
By a plain name a browser could take an old module from its cache for a new script.
"""

from __future__ import annotations

from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticFilesWithFingerprints(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # it has no types
    support_js_module_import_aggregation = True
