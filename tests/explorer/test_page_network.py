"""The page and its server: no other host, and a server that is gone for a while."""

from playwright.sync_api import expect

from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.reading import Visits, apart, drawn


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
    expect(visit.by("status")).to_contain_text("does not answer")
    visit.page.unroute("**/api/**")
    visit.press("knob-1", "Home")
    assert apart(visit.grey("reconstruction"), drawn(bundled, 7, visit.knobs())) <= 1
