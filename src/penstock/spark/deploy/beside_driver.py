"""Let Python workers beside the driver, which plan data sources, use the archive too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.deploy.pack import ALIAS
from penstock.spark.deploy.preflight import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def show_archive(spark: SparkSession) -> None:
    """Add the packages of an unpacked archive to the PYTHONPATH of workers that start from now on.

    Spark unpacks archives for the driver too, and a worker finds Penstock there by itself. A worker that plans a data source
    imports pyarrow before it looks there. On executors this folder does not exist, which Python ignores.
    """
    if is_connect(spark):
        return
    from pyspark import SparkFiles  # noqa: PLC0415 - Spark loads when it is used

    site = str(Path(SparkFiles.getRootDirectory()) / ALIAS / "site")
    environment = spark.sparkContext.environment
    before = environment.get("PYTHONPATH", "").split(os.pathsep)
    if Path(site).is_dir() and site not in before:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [site, *before]))
