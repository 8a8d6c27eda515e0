// Opens pages in the system's Chromium: what axe finds, how long until they can be used, pictures, keyboard.
// argv: a JSON document {chromium, pages: [url], shots: folder or null, looks: [[scheme, width]]}; prints one JSON document.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

const order = JSON.parse(process.argv[2])
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const browser = await chromium.launch({ executablePath: order.chromium, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] })
const out = []
for (const [scheme, width] of order.looks) {
    // The page's own policy forbids inline scripts, which is how axe comes in.
    const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height: 900 }, bypassCSP: true })
    const page = await context.newPage()
    for (const [n, url] of order.pages.entries()) {
      const errors = []
      page.removeAllListeners('console')
      page.on('console', (m) => m.type() === 'error' && errors.push(m.text()))
      const answer = await page.goto(url, { waitUntil: 'domcontentloaded' })
      const interactive = await page.evaluate(() => performance.getEntriesByType('navigation')[0].domInteractive)
      await page.evaluate(axe)
      const found = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }))
      const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth + 1)
      await page.keyboard.press('Tab')
      const first = await page.evaluate(() => document.activeElement?.textContent)
      const links = await page.evaluate(() => [...document.querySelectorAll('a[href]')].map((a) => a.href))
      if (order.shots) await page.screenshot({ path: `${order.shots}/${n}-${scheme}-${width}.png`, fullPage: order.full ?? true })
      out.push({
        url, scheme, width, status: answer?.status() ?? 200, interactive, wide, first, links, errors,
        violations: found.violations.map((v) => `${v.id}: ${v.nodes.map((x) => x.html.slice(0, 120)).slice(0, 3).join(' | ')}`),
      })
    }
    await context.close()
}
await browser.close()
process.stdout.write(JSON.stringify(out))
