"""Packs the program as a Python wheel, and as the directory of a container image (OCI image layout 1.0).

Both are plain containers of files with a few lines of JSON or text around: PEP 427, and the OCI image specification. The same program
and time give the same bytes.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import tarfile
import time
import zipfile


def wheel(program: bytes, man: pathlib.Path, version: str, arch: str, out: pathlib.Path, when: int, level: int) -> None:
    # The program is static: it runs with any C library, old or new.
    platforms = f"manylinux2014_{arch}.musllinux_1_1_{arch}"
    info = f"haul-{version}.dist-info"
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in platforms.split("."))
    files = {
        f"haul-{version}.data/scripts/haul": program,
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: haul\nVersion: {version}\nSummary: Moves large data sets between machines\n"
            "License: MIT OR Apache-2.0\nRequires-Python: >=3.6\n"
        ).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: haul\nRoot-Is-Purelib: false\n{tags}".encode(),
    }
    for page in sorted(man.glob("man?/*")):
        files[f"haul-{version}.data/data/share/man/{page.relative_to(man)}"] = page.read_bytes()
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    # A zip has no times before 1980.
    date = time.gmtime(max(when, 315532800))[:6]
    with zipfile.ZipFile(out / f"haul-{version}-py3-none-{platforms}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def image(program: bytes, version: str, arch: str, out: pathlib.Path, when: int, level: int) -> None:
    root = out / "image"
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def keep(data: bytes, media_type: str) -> dict:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{name}", "size": len(data)}

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, mode, data in [
            ("usr", 0o755, None),
            ("usr/bin", 0o755, None),
            ("usr/bin/haul", 0o755, program),
            ("data", 0o1777, None),
            ("tmp", 0o1777, None),
        ]:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.mtime = mode, when
            entry.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            entry.size = len(data or b"")
            archive.addfile(entry, io.BytesIO(data or b""))
    packed = keep(gzip.compress(layer.getvalue(), level, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[arch]
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
    config = {
        "created": made,
        "architecture": machine,
        "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/haul"], "WorkingDir": "/data", "Env": ["HOME=/data"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
        "history": [{"created": made, "created_by": "make dist"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": keep(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": [packed],
    }
    named = keep(json.dumps(manifest).encode(), manifest["mediaType"])
    named["platform"] = {"architecture": machine, "os": "linux"}
    named["annotations"] = {"org.opencontainers.image.ref.name": version}
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
    (root / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))


def main() -> None:
    flags = argparse.ArgumentParser()
    for name in ["program", "man", "version", "arch", "out"]:
        flags.add_argument(f"--{name}", required=True)
    flags.add_argument("--level", type=int, default=9)
    asked = flags.parse_args()
    when = int(os.environ["SOURCE_DATE_EPOCH"])
    program = pathlib.Path(asked.program).read_bytes()
    out = pathlib.Path(asked.out)
    wheel(program, pathlib.Path(asked.man), asked.version, asked.arch, out, when, asked.level)
    image(program, asked.version, asked.arch, out, when, asked.level)


if __name__ == "__main__":
    main()
