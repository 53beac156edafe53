"""The page and its server: no other host, and a server that is gone for a while."""

from playwright.sync_api import Browser, expect

from capsnet.explorer import create_app
from capsnet.models import Model
from tests.explorer.browser import Visit, new_context, serving
from tests.explorer.conftest import BUNDLED
from tests.explorer.reading import DOWN, Visits, apart, drawn


def test_page_loads_nothing_from_other_hosts(visits: Visits) -> None:
    """Each visit is checked at its end; this test checks that the check works."""
    visit = visits().open()
    assert len(visit.addresses) > 30
    assert visit.complaints == []
    probe = "() => fetch('http://127.0.0.1:9/x').then(() => 'reached', () => 'refused')"
    assert visit.page.evaluate(probe) == "refused"  # by the policy, before anything is sent
    visit.until(lambda: visit.complaints)
    assert visit.net()["refused"] == ["connect-src http://127.0.0.1:9/x"]
    visit.pardoned += ["Content Security Policy"]
    visit.page.evaluate("() => { net.refused = []; }")
    visit.addresses[:] = [url for url in visit.addresses if ":9/x" not in url]
    visit.page.evaluate("() => console.error('a complaint')")
    visit.until(lambda: "a complaint" in visit.complaints)
    visit.complaints.remove("a complaint")


def test_lost_server_is_reported_and_used_again(visit: Visit, bundled: Model) -> None:
    visit.pardoned += ["ERR_"]
    visit.page.route("**/api/**", lambda route: route.abort())
    visit.by("knob-1").focus()
    visit.page.keyboard.press("End")
    expect(visit.by("gone")).to_contain_text("does not answer")
    visit.page.unroute("**/api/**")
    expect(visit.by("gone")).to_be_empty()
    visit.press("knob-1", "Home")
    assert apart(visit.grey("reconstruction"), drawn(bundled, 7, visit.knobs())) <= 1


def test_server_that_is_gone_is_seen_and_comes_back(chromium: Browser, bundled: Model) -> None:
    first = serving(create_app({BUNDLED: bundled}))
    home = first.__enter__()
    visit = Visit(new_context(chromium, home).new_page(), home).open()
    visit.pardoned += ["ERR_"]
    dimmed = "() => Number(getComputedStyle(document.querySelector('#classes .body')).opacity) < 0.6"
    assert not visit.page.evaluate(dimmed)
    before = visit.by("first").inner_text()
    first.__exit__(None, None, None)
    mouse, spots = visit.page.mouse, visit.spots("canvas", DOWN)
    mouse.move(*spots[0])
    mouse.down()
    mouse.move(*spots[1], steps=8)
    mouse.up()
    expect(visit.by("gone")).to_contain_text("Disconnected")
    assert visit.by("first").inner_text() == before  # old, and seen to be
    assert visit.page.evaluate(dimmed)
    paper = visit.grey("canvas")
    visit.page.wait_for_timeout(1500)
    expect(visit.by("gone")).to_be_visible()  # it lasts
    with serving(create_app({BUNDLED: bundled}), int(home.rstrip("/").rpartition(":")[2])):
        expect(visit.by("gone")).to_be_hidden()
        expect(visit.by("first")).to_contain_text("first: 1")  # what was drawn meanwhile is answered
        visit.quiet()
        assert apart(visit.grey("canvas"), paper) == 0
        assert not visit.page.evaluate(dimmed)
        visit.close()
