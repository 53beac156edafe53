"""The oscillators of the page against ``capsnet.oscillators``, and their panel."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from capsnet import oscillators
from tests.explorer.browser import Visit
from tests.explorer.reading import Visits

RUN = """async ({ start, rates, sphere, K }) => {
  const m = await import("/static/js/kuramoto.js");
  const theta = Float64Array.from(start);
  const omega = m.frequencies(start.length, 0.7);
  for (let n = 0; n < 6; n += 1) m.stepCircle(theta, omega, K, 0.05);
  const x = Float64Array.from(sphere);
  for (let n = 0; n < 6; n += 1) m.stepSphere(x, rates, K, 0.05);
  return {
    theta: [...theta], omega: [...omega], x: [...x], order: m.order(theta).r, critical: m.criticalCoupling(0.7),
    locked: [0.5, 1.2, 1.8, 3].map((coupling) => m.lockedOrder(coupling, 0.7)),
  };
}"""


def computed(visit: Visit, **start: Any) -> dict[str, Any]:
    return visit.page.evaluate(RUN, {key: value.flatten().tolist() for key, value in start.items()} | {"K": 1.5})


def test_steps_are_the_librarys(visit: Visit) -> None:
    start = 2 * np.pi * torch.rand(40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    sphere = oscillators.random_phases(40, 3, seed=4, dtype=torch.float64)
    rates = torch.randn(40, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    page = computed(visit, start=start, sphere=sphere, rates=rates)
    law = oscillators.normal(0.7)
    assert page["omega"] == pytest.approx(law.frequencies(40).tolist(), abs=1e-9)
    run = oscillators.simulate(law.frequencies(40), 1.5, time=0.3, dt=0.05, start=start)
    assert page["theta"] == pytest.approx(run.phases[-1].tolist(), abs=1e-8)
    assert page["order"] == pytest.approx(float(run.order[-1]), abs=1e-8)
    for _ in range(6):
        sphere = oscillators.step(sphere, 1.5 * sphere.mean(dim=0), gamma=0.05, rates=rates)
    assert page["x"] == pytest.approx(sphere.flatten().tolist(), abs=1e-9)
    assert page["critical"] == pytest.approx(oscillators.critical_coupling(law), abs=1e-12)
    expected = [oscillators.locked_order(K, law) for K in (0.5, 1.2, 1.8, 3)]
    assert page["locked"] == pytest.approx(expected, abs=1e-4)


def test_oscillators_lock_above_the_critical_coupling(visits: Visits) -> None:
    visit = visits(reduced_motion="no-preference").open()
    order, words = visit.by("oscillators-order"), visit.by("oscillators-words")
    still = order.inner_text()
    visit.page.wait_for_timeout(100)
    assert order.inner_text() == still  # nobody looks
    visit.page.locator("#oscillators").scroll_into_view_if_needed()
    expect(words).to_contain_text("K_c = 1.60; you are below it")
    visit.until(lambda: order.inner_text() != still)
    visit.by("oscillators-K").fill("3.6")
    expect(words).to_contain_text("above it: a part of them locks")
    visit.until(lambda: float(order.inner_text()) > 0.85)
    visit.by("oscillators-play").click()
    expect(visit.by("oscillators-play")).to_have_text("Play")
    rest = order.inner_text()
    visit.by("oscillators-N").fill("40")
    expect(visit.by("oscillators")).to_have_attribute("aria-label", re.compile("^40 oscillators on a circle"))
    assert order.inner_text() != rest  # begun anew, at rest
    visit.by("oscillators-sphere").click()
    expect(words).to_contain_text("On a sphere")
    expect(visit.by("oscillators-curve")).to_be_hidden()
    assert "osc=sphere.3.6_1_40" in visit.link()


def test_nothing_moves_with_reduced_motion(visits: Visits) -> None:
    visit = visits().open("#osc=circle.2_0.5_60")
    visit.page.locator("#oscillators").scroll_into_view_if_needed()
    expect(visit.by("oscillators-play")).to_have_text("Play")
    expect(visit.by("oscillators-words")).to_contain_text("K_c = 0.80")
    before = visit.by("oscillators-order").inner_text()
    visit.page.wait_for_timeout(200)
    assert visit.by("oscillators-order").inner_text() == before
