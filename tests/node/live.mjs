// Looks at the page of a run that goes on: argv is {chromium, url, go, job}; makes the file `go` once the page says that the
// run goes on, so that the job ends, and tells what the page, which is never loaded again, says then.
import { writeFileSync } from 'node:fs'
import { chromium } from 'playwright-core'

const order = JSON.parse(process.argv[2])
const browser = await chromium.launch({ executablePath: order.chromium, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] })
const page = await browser.newPage()
const heading = () => page.locator('h1').textContent()
await page.goto(order.url)
await page.evaluate(() => { window.sameDocument = true })
const first = await heading()
await page.locator(`table a:text-is("${order.job}")`).focus()
writeFileSync(order.go, '')
await page.waitForFunction(() => document.querySelector('#said').textContent !== '', null, { timeout: 60000 })
const out = {
  first,
  last: await heading(),
  title: await page.title(),
  said: await page.locator('#said').textContent(),
  same: await page.evaluate(() => window.sameDocument === true),
  focused: await page.evaluate(() => document.activeElement.textContent),
}
await browser.close()
process.stdout.write(JSON.stringify(out))
