from playwright.sync_api import expect


def test_x(site, page):
    import time
    for name, path, q in [("all","overview",""),("all","rollouts",""),("all","rollout/60/0",""),("all","task/60",""),("deep/failures","rollout/2/0",""),("tokens","rollout/0/0","tab=tokens"), ("attacks","rollout/0/0",""),("attacks","rollout/2/0",""),("all","rollout/155/0",""),("all","rollout/45/0",""),("all","rollout/45/0","tab=timeline")]:
        site.open(page, name, path, q)
        time.sleep(1.5)
        print("=====", name, path, page.url)
        print(page.locator("body").aria_snapshot()[:5000])
        page.screenshot(path=f"/tmp/pwx/{name.replace('/','_')}_{path.replace('/','_')}{q}.png")
    for u in ["#/runs", f"#/compare?run={site.run('all')}&run={site.run('tokens')}", f"#/align/1?run={site.run('all')}&run={site.run('tokens')}"]:
        page.goto(site.origin+"/"+u); time.sleep(1.5)
        print("=====", page.url)
        print(page.locator("body").aria_snapshot()[:5000])
        page.screenshot(path=f"/tmp/pwx/{u[2:7]}.png")
