// Types words into the search of the documentation and prints the links that it finds, and requests to other hosts.
import { chromium } from 'playwright-core'

const order = JSON.parse(process.argv[2])
const browser = await chromium.launch({ executablePath: order.chromium, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] })
const page = await browser.newPage()
const out = { elsewhere: [] }
page.on('request', (r) => /^https?:/.test(r.url()) && !r.url().startsWith(order.url) && out.elsewhere.push(r.url()))
for (const word of order.words) {
  await page.goto(order.url)
  await page.keyboard.press('/')
  await page.waitForFunction(() => document.activeElement?.matches('.md-search__input'))
  await page.keyboard.type(word)
  await page.waitForSelector('.md-search-result__link')
  out[word] = await page.evaluate(() => [...document.querySelectorAll('.md-search-result__link')].map((a) => a.href))
}
await browser.close()
process.stdout.write(JSON.stringify(out))
