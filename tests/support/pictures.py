"""Files that somebody may upload for a picture: good ones, and bad ones of every kind. Writes nothing."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

from PIL import Image

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def picture(kind: str = "PNG", *, size: tuple[int, int] = (640, 480), mode: str = "RGB", **options: Any) -> bytes:
    """Return a picture of one colour, with a darker half on the left; options: those of Pillow's save."""
    image = Image.new(mode, size, "orange" if mode in ("RGB", "RGBA", "P", "CMYK") else 200)
    image.paste(0, (0, 0, size[0] // 2, size[1]))
    written = BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


def moving(kind: str) -> bytes:
    """Return a picture of two frames."""
    frames = [Image.new("RGB", (60, 40), colour) for colour in ("red", "blue")]
    written = BytesIO()
    frames[0].save(written, kind, save_all=True, append_images=frames[1:])
    return written.getvalue()


def png_of(width: int, height: int) -> bytes:
    """Return a small file that claims to be a picture of any size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def bad_pictures() -> dict[str, tuple[bytes, str]]:
    """Return files that are not taken, by their kind: the content, and a part of the sentence that says why."""
    whole, photo = picture(), picture("JPEG", exif=Image.Exif())
    return {
        "nothing": (b"", "empty"),
        "text": (b"not a picture at all", "not a picture"),
        "html": (b"<p>hello</p><script>alert(1)</script>", "not a picture"),
        "svg": (SVG, "SVG"),
        "svg with a prolog": (b'\xef\xbb\xbf<?xml version="1.0"?>\n' + SVG, "SVG"),
        "svg with a doctype": (b"  \n<!DOCTYPE svg>" + SVG, "SVG"),
        "gif": (picture("GIF"), "not a picture"),
        "tiff": (picture("TIFF"), "not a picture"),
        "a page": (b"<!DOCTYPE html><p>hello</p>", "not a picture"),
        "zip": (b"PK\x03\x04" + bytes(400), "not a picture"),
        "eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture"),
        "a head alone": (b"\x89PNG\r\n\x1a\n", "not a picture"),
        "half a png": (whole[: len(whole) // 2], "damaged"),
        "half a jpeg": (photo[: len(photo) // 2], "damaged"),
        "half a webp": (picture("WEBP")[:60], "damaged"),
        "a broken chunk": (whole[:60] + bytes(60) + whole[120:], "damaged"),
        "moving webp": (moving("WEBP"), "moves"),
        "moving png": (moving("PNG"), "moves"),
        "a bomb": (png_of(60_000, 60_000), "pixels"),
        "a bomb with a long side": (png_of(2_000_000_000, 3), "pixels"),
        "too many pixels": (png_of(8_000, 6_000), "pixels"),
        "9 MB": (whole + bytes(9 * 1024**2), "too large"),
    }
