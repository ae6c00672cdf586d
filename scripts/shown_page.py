"""Photographs the page of `carso play`, wide and narrow, in Debian's Chromium.

python scripts/shown_page.py docs/pictures
"""

from __future__ import annotations

import argparse
import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from carso.storage.files import replacing

RECORD = Path(__file__).parents[1] / "docs" / "results" / "fashion-adaptive.json"
WIDTHS = {"wide": 1280, "narrow": 390}
WARM = 3
"""Attacks, of which the last is photographed: the first ones load and warm what they need."""


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium without a window."""
    options = webdriver.ChromeOptions()
    for word in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{word}")
    options.add_argument("--window-size=1280,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = "/usr/bin/chromium"
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


def photographed(driver: Any, path: Path, width: int) -> None:
    """The whole page at this width."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    height = driver.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    with replacing(path) as written:
        written.write_bytes(base64.b64decode(taken["data"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    command = [sys.executable, "-m", "carso", "play", "fashion", "--port", "0"]
    command += ["--record", str(RECORD)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[1]
        with browser() as driver:
            driver.get(address)
            wait = WebDriverWait(driver, 180)
            wait.until(lambda d: d.execute_script("return document.body.dataset.ready"))
            images = driver.find_elements(By.CSS_SELECTOR, "#thumbnails input")
            images[9].send_keys(" ")
            for tab in ("attack", "compare", "record"):
                driver.find_element(By.ID, f"tab-{tab}").click()
                if tab != "record":
                    for _ in range(WARM):
                        driver.execute_script("document.getElementById('took').textContent = ''")
                        driver.find_element(By.ID, "go").click()
                        wait.until(lambda d: d.find_element(By.ID, "took").text)
                        time.sleep(1)  # what the browser draws is none of the answer's time
                else:
                    time.sleep(2)  # for the frame, whose page has no word for being there
                for name, width in WIDTHS.items():
                    photographed(driver, out / f"play-{tab}-{name}.png", width)
    finally:
        server.terminate()
        server.wait(timeout=30)


if __name__ == "__main__":
    main()
