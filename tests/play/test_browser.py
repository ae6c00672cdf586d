# ruff: noqa: E402
"""The page in a real Chromium, by keyboard and at the width of a telephone."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

selenium = pytest.importorskip("selenium", reason="selenium is not installed")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from shown_page import browser


@pytest.fixture(scope="module")
def driver(address: str) -> Iterator[Any]:
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no Chromium with its driver here")
    with browser() as found:
        found.get(address)
        until(found, lambda d: d.execute_script("return document.body.dataset.ready") == "yes")
        yield found


def until(driver: Any, true: Any) -> Any:
    return WebDriverWait(driver, 120).until(true)


def text(driver: Any, name: str) -> str:
    return str(driver.find_element(By.ID, name).text)


def answered(driver: Any) -> str:
    """The sentence after an attack."""
    until(driver, lambda d: d.find_element(By.ID, "result").get_attribute("aria-busy") == "false")
    return text(driver, "verdict")


def tab_to(driver: Any, name: str) -> Any:
    """The element of this id, reached by the tabulator alone."""
    for _ in range(40):
        active = driver.switch_to.active_element
        if active.get_attribute("id") == name:
            return active
        active.send_keys(Keys.TAB)
    raise AssertionError(f"no way to {name} by keyboard")


def test_the_page_is_worked_by_keyboard_alone(driver: Any) -> None:
    driver.find_element(By.ID, "tab-attack").send_keys("")
    steps = tab_to(driver, "steps")
    steps.send_keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert text(driver, "steps-shown") == "3"
    eps = driver.find_element(By.ID, "eps")
    before = float(eps.get_attribute("value"))
    eps.send_keys(Keys.ARROW_RIGHT)
    assert float(eps.get_attribute("value")) == pytest.approx(before + 0.005)
    tab_to(driver, "go").send_keys(Keys.ENTER)
    assert "attacked through the whole defence (Linf, eps = 0.105, 3 steps)" in answered(driver)
    assert len(driver.find_elements(By.CSS_SELECTOR, "#pictures img")) == 3
    assert len(driver.find_elements(By.CSS_SELECTOR, "#parties .card")) == 2
    first = "#parties .card:first-child"
    assert len(driver.find_elements(By.CSS_SELECTOR, f"{first} .bars .track")) == 20
    bars = driver.find_elements(By.CSS_SELECTOR, f"{first} .candidates .track i")
    assert len(bars) == 8
    assert all(bar.size["width"] > 0 for bar in bars)
    assert text(driver, "step-words").startswith("Step 3 of 3")
    driver.find_element(By.ID, "step").send_keys(Keys.HOME)
    assert text(driver, "step-words").startswith("Step 1 of 3")


def test_nothing_comes_from_elsewhere(driver: Any, address: str) -> None:
    script = "return performance.getEntriesByType('resource').map(e => e.name)"
    loaded = [url for url in driver.execute_script(script) if not url.startswith("data:")]
    assert len(loaded) >= 5
    assert all(url.startswith(address) for url in loaded)
    severe = [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]
    assert severe == []


def test_a_picture_that_does_not_fit_is_said_in_one_line(driver: Any, tmp_path: Path) -> None:
    driver.find_element(By.CSS_SELECTOR, "input[value=upload]").send_keys(" ")
    wrong, right = tmp_path / "wrong.png", tmp_path / "right.png"
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(wrong)
    Image.fromarray(np.full((28, 28), 99, np.uint8)).save(right)
    empty, large = tmp_path / "empty.png", tmp_path / "large.png"
    empty.touch()
    large.write_bytes(bytes(1_500_000))
    words = tmp_path / "words.txt"
    words.write_text("no picture")
    for path, says in (
        (wrong, "this defence takes images of 28x28"),
        (words, "no image file that can be read: PNG or JPEG would do"),
        (empty, "the file is empty"),
        (large, "larger than 1.4 MB"),
        (right, "the classifier"),
    ):
        driver.find_element(By.ID, "file").send_keys(str(path))
        driver.find_element(By.ID, "go").send_keys(Keys.ENTER)
        until(driver, lambda d, says=says: says in d.find_element(By.ID, "verdict").text)
        shown = driver.find_elements(By.CSS_SELECTOR, "#pictures img")
        assert bool(shown) == (path == right)  # nothing of before stands below a refusal
    driver.get_log("browser")  # the refusal, which is no fault of the page


def test_a_drawing_by_keyboard_is_attacked(driver: Any) -> None:
    driver.find_element(By.CSS_SELECTOR, "input[value=draw]").send_keys(" ")
    canvas = driver.find_element(By.ID, "canvas")
    canvas.send_keys(*([Keys.ARROW_DOWN, Keys.SPACE] * 5))
    driver.find_element(By.ID, "go").send_keys(Keys.ENTER)
    assert "What the classifier calls" in answered(driver)


def test_the_tabs_turn_by_arrows_and_compare_two(driver: Any) -> None:
    driver.find_element(By.ID, "tab-attack").send_keys(Keys.ARROW_RIGHT)
    assert driver.find_element(By.ID, "against").is_displayed()
    driver.find_element(By.ID, "go").send_keys(Keys.ENTER)
    answered(driver)
    assert len(driver.find_elements(By.CSS_SELECTOR, "#parties .card")) == 4
    driver.find_element(By.ID, "tab-compare").send_keys(Keys.ARROW_RIGHT)
    frame = driver.find_element(By.ID, "page")
    until(driver, lambda d: frame.is_displayed())
    driver.switch_to.frame(frame)
    until(driver, lambda d: "Robustness report" in d.find_element(By.TAG_NAME, "body").text)
    driver.switch_to.default_content()
    driver.find_element(By.ID, "tab-record").send_keys(Keys.ARROW_RIGHT)


def test_a_server_that_is_gone_is_said(driver: Any) -> None:
    driver.execute_script("window.kept = fetch; fetch = () => Promise.reject(new TypeError('no'))")
    driver.find_element(By.ID, "go").send_keys(Keys.ENTER)
    until(driver, lambda d: "is carso play still running?" in text(d, "verdict"))
    driver.execute_script("fetch = window.kept")


def test_the_slider_begins_at_the_eps_of_the_defence(driver: Any) -> None:
    for name, wanted in (("cifar10-small-hardened", 8 / 255), ("fashion", 0.1)):
        driver.find_element(By.CSS_SELECTOR, f"#defence option[value={name}]").click()
        until(driver, lambda d, eps=wanted: abs(slider(d) - eps) < 1e-6)
        assert text(driver, "verdict") == "Pick an image and attack it."
    driver.find_element(By.CSS_SELECTOR, "input[name=norm][value=L2]").send_keys(" ")
    assert slider(driver) == 1.5
    driver.find_element(By.CSS_SELECTOR, "input[name=norm][value=Linf]").send_keys(" ")
    assert slider(driver) == pytest.approx(0.1)


def slider(driver: Any) -> float:
    return float(driver.find_element(By.ID, "eps").get_attribute("value"))


def test_nothing_is_wider_than_a_telephone(driver: Any) -> None:
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True},
    )
    for name in ("attack", "compare", "record"):
        driver.find_element(By.ID, f"tab-{name}").click()
        width = driver.execute_script("return document.documentElement.scrollWidth")
        assert width <= 390, name
    driver.find_element(By.ID, "tab-attack").click()
    driver.find_element(By.CSS_SELECTOR, "input[name=source][value=test]").click()
    driver.find_element(By.CSS_SELECTOR, "input[name=aim][value=classifier]").click()
    driver.execute_script("document.getElementById('took').textContent = ''")
    driver.find_element(By.ID, "go").click()
    until(driver, lambda d: text(d, "took"))
    place = "return document.getElementById('verdict').getBoundingClientRect().top"
    until(driver, lambda d: 0 <= d.execute_script(place) < 100)  # what was found is seen at once
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_class_that_is_behind_is_not_said_to_lead(driver: Any) -> None:
    eps = driver.find_element(By.ID, "eps")
    eps.send_keys(Keys.END)
    assert text(driver, "eps-shown") == "0.500 (127.5/255)"
    driver.execute_script("document.getElementById('took').textContent = ''")
    driver.find_element(By.ID, "go").send_keys(Keys.ENTER)
    until(driver, lambda d: text(d, "took"))
    assert "the right class is behind by" in text(driver, "step-words")
