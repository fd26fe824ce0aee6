"""Makes a picture that every page can show from a file that somebody uploaded: one format, a bounded size, no metadata.
Never keeps a byte of the file itself, never believes its name or what the browser says of it, and never decodes more
pixels than MAX_PIXELS, or two pictures at once.
"""

from __future__ import annotations

import re
from io import BytesIO
from threading import Lock

from django.core.exceptions import ValidationError
from django.core.files import File
from django.utils.translation import gettext
from PIL import Image, ImageOps, UnidentifiedImageError

MAX_FILE_BYTES = 8 * 1024 * 1024
# Of the file; a decoded picture takes four bytes for each. The largest page shows some 560 pixels, twice that on a
# dense screen.
MAX_PIXELS, MAX_SIDE = 40_000_000, 1280
FORMATS = ("JPEG", "PNG", "WEBP")
QUALITY = 82
SVG = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*<(?:[?!].{0,4000}<)?svg\b", re.IGNORECASE | re.DOTALL)
ONE_AT_A_TIME = Lock()


def encode_picture(upload: File[bytes]) -> bytes:
    """Return `upload` as a WebP of at most MAX_SIDE pixels a side, upright. Raises ValidationError, which says why not.

    A JPEG's colours are taken as sRGB. Transparent parts stay transparent.
    """
    if upload.size > MAX_FILE_BYTES:
        max_mib = MAX_FILE_BYTES // 1024**2
        text = gettext("The file is too large: a picture may have %(n)d MB. Make it smaller first.")
        raise ValidationError(text % {"n": max_mib})
    content = upload.read()
    if SVG.match(content):
        raise ValidationError(
            gettext("An SVG can carry scripts, so none is taken. Save the picture as PNG, JPEG or WebP.")
        )
    with ONE_AT_A_TIME:
        return _encode(content)


def _encode(content: bytes) -> bytes:
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            _check(image)
            return _as_webp(image)
    except ValidationError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels() from None
    except UnidentifiedImageError:
        raise ValidationError(gettext("This is not a picture that can be read. Take a JPEG, PNG or WebP.")) from None
    except Exception:  # the decoders raise many kinds of errors for broken content
        raise ValidationError(gettext("The picture is damaged: it cannot be read to its end.")) from None


def _check(image: Image.Image) -> None:
    """Raise ValidationError for a picture that is not to be decoded; only its head was read so far."""
    if image.width * image.height > MAX_PIXELS:
        raise _too_many_pixels()
    # A phone's JPEG may bring a second picture, which is left out.
    if image.format in ("PNG", "WEBP") and getattr(image, "is_animated", False):
        raise ValidationError(gettext("The picture moves. Take one that stands still."))


def _too_many_pixels() -> ValidationError:
    max_millions = MAX_PIXELS // 1_000_000
    text = gettext("The picture has too many pixels: at most %(n)d million are taken. Make it smaller first.")
    return ValidationError(text % {"n": max_millions})


def _as_webp(image: Image.Image) -> bytes:
    image.draft("RGB", (2 * MAX_SIDE, 2 * MAX_SIDE))  # a large JPEG is decoded at half or a quarter of its size
    if image.mode.startswith("I"):  # 16 bits a pixel
        image = image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    small = image.convert("RGBA" if image.has_transparency_data else "RGB")
    small.thumbnail((MAX_SIDE, MAX_SIDE))
    written = BytesIO()
    # Without exif, profile and xmp, which are written only when they are named here.
    ImageOps.exif_transpose(small).save(written, "WEBP", quality=QUALITY)
    return written.getvalue()
