// Second opinion on a comment: what in it becomes a mention, a reference, a link, an image or a heading, by remark (not cmark).
// Reads a JSON list of Markdown texts on stdin; prints a JSON list of lists of what is live in each.
import { text } from 'node:stream/consumers'
import remarkGfm from 'remark-gfm'
import remarkGithub from 'remark-github'
import remarkParse from 'remark-parse'
import { unified } from 'unified'

const parser = unified().use(remarkParse).use(remarkGfm).use(remarkGithub, { repository: 'o/r' })
const KINDS = new Set(['link', 'linkReference', 'image', 'imageReference', 'definition', 'heading', 'footnoteReference', 'footnoteDefinition'])

function live(markdown) {
  const found = []
  const walk = (node) => {
    if (KINDS.has(node.type)) found.push(`${node.type} ${node.url ?? node.identifier ?? ''}`)
    for (const child of node.children ?? []) walk(child)
  }
  walk(parser.runSync(parser.parse(markdown)))
  return found
}

process.stdout.write(JSON.stringify(JSON.parse(await text(process.stdin)).map(live)))
