// Keeps the page of a run that goes on up to date, without losing the reader's place: focus, what is open, how far it is scrolled.
'use strict'
const main = document.querySelector('main[data-going="true"]')
const said = document.querySelector('#said')
const parts = () => [...main.querySelectorAll('a, summary, input, button, [tabindex]')]
const key = (e) => `${e.tagName} ${e.getAttribute('href') ?? ''} ${e.getAttribute('aria-label') ?? ''} ${e.matches('[role="group"]') ? '' : e.textContent.slice(0, 80)}`
const busy = () => main.querySelector('input:focus') || (!getSelection().isCollapsed && main.contains(getSelection().anchorNode))

const show = (next) => {
  const focused = main.contains(document.activeElement) ? parts().filter((e) => key(e) === key(document.activeElement)).indexOf(document.activeElement) : -1
  const name = focused >= 0 ? key(document.activeElement) : ''
  const open = new Set([...main.querySelectorAll('details[open] > summary')].map(key))
  const scrolled = new Map([...main.querySelectorAll('[tabindex]')].filter((e) => e.scrollLeft).map((e) => [key(e), e.scrollLeft]))
  main.innerHTML = next.innerHTML
  for (const s of main.querySelectorAll('details > summary')) if (open.has(key(s))) s.parentElement.open = true
  for (const e of main.querySelectorAll('[tabindex]')) if (scrolled.has(key(e))) e.scrollLeft = scrolled.get(key(e))
  if (focused >= 0) parts().filter((e) => key(e) === name)[focused]?.focus({ preventScroll: true })
}

const look = async () => {
  let wait = 3000
  try {
    const answer = await fetch(location.href)
    if (!answer.ok) throw new Error(answer.statusText)
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html')
    const next = page.querySelector('main')
    if (busy()) wait = 1000
    else {
      const news = next.querySelector('h1').textContent !== main.querySelector('h1').textContent
      if (next.innerHTML !== main.innerHTML) show(next)
      document.title = page.title
      if (news) said.textContent = main.querySelector('h1').textContent
      if (next.dataset.going !== 'true') return
    }
  } catch {
    wait = 10000 // the server is away
  }
  setTimeout(look, wait)
}
if (main) setTimeout(look, 3000)
