// A server of the kind that is named, for tests: it says in X-Handler which of
// its handlers a request has reached.
//
//   node server.js express|express4|fastify|fastify4|url
'use strict'
const http = require('node:http')
const querystring = require('node:querystring')

// What a request says, as the server's own parsers and usual lines of services have
// it: of each part of a request what each of them reads, null for nothing.
function values (req, query, cookies) {
  const auth = req.headers.authorization
  const after = auth === undefined ? '' : auth
  let url = null
  try { url = new URL(req.url, 'http://host').searchParams.get('user_id') } catch {}
  const text = v => v === undefined ? null : typeof v === 'string' ? v : Array.isArray(v) ? String(v) : JSON.stringify(v)
  const none = v => v === undefined || Array.isArray(v) && v.length === 0 ? null : v
  const trimmed = v => typeof v === 'string' ? v.trim() : v
  return JSON.stringify({
    query: { trimmed: trimmed(url), own: query ? none(query.user_id) : undefined, url: none(url), querystring: none(querystring.parse(req.url.slice(req.url.indexOf('?') + 1)).user_id) },
    cookie: cookies ? { own: text(cookies.session) } : {},
    field: { own: none(req.headers['x-api-key']), trimmed: trimmed(none(req.headers['x-api-key'])) },
    bearer: {
      second: none(after.split(' ')[1]),
      pattern: none((/^Bearer +(.+)$/i.exec(after) || [])[1]),
      passport: none((/(\S+)\s+(\S+)/.exec(after) || [])[2]),
      replaced: auth ? after.replace(/^Bearer\s+/i, '') : null,
      found: none(after.split('Bearer ')[1]),
      cut: after.slice(7) || null
    },
    basic: { pattern: none((/^Basic +([A-Za-z0-9._~+/-]+=*) *$/i.exec(after) || []).slice(1).map(t => Buffer.from(t, 'base64').toString())[0]) }
  })
}

const reached = (res, name) => res.setHeader('X-Handler', name)

function express (name) {
  const app = require(name)()
  app.disable('x-powered-by')
  app.get('/exact', (req, res) => { reached(res, 'exact'); res.end() })
  app.use('/login', (req, res) => { reached(res, 'login'); res.end() })
  app.get('/v1/health', (req, res) => { reached(res, 'health'); res.end() })
  app.use('/v1', (req, res) => { reached(res, 'v1'); res.end() })
  try { app.use(require('cookie-parser')()) } catch {}
  app.use('/values', (req, res) => res.end(values(req, req.query, req.cookies)))
  app.use((req, res) => { reached(res, 'other'); res.end() })
  app.use((err, req, res, next) => { res.statusCode = err.status || 500; res.end() })
  return http.createServer(app)
}

async function fastify (name) {
  const app = require(name)()
  for (const [path, handler] of [['/exact', 'exact'], ['/login', 'login'], ['/login/*', 'login'], ['/v1/health', 'health'], ['/v1/*', 'v1']]) {
    app.get(path, (req, reply) => reply.header('X-Handler', handler).send(''))
  }
  app.get('/values/*', (req, reply) => reply.send(values(req.raw, req.query)))
  app.setNotFoundHandler((req, reply) => reply.header('X-Handler', 'other').send(''))
  await app.ready()
  return app.server
}

// Node alone, with the URL parser of browsers.
function url () {
  return http.createServer((req, res) => {
    let path
    try {
      path = decodeURIComponent(new URL(req.url, 'http://host').pathname)
    } catch {
      res.statusCode = 400
      return res.end()
    }
    if (path.startsWith('/values/')) return res.end(values(req))
    const is = prefix => path === prefix || path.startsWith(prefix + '/')
    reached(res, path === '/exact' ? 'exact' : is('/login') ? 'login' : path === '/v1/health' ? 'health' : is('/v1') ? 'v1' : 'other')
    res.end()
  })
}

async function main (kind) {
  const server = kind === 'url' ? url() : await (kind.startsWith('express') ? express(kind) : fastify(kind))
  server.keepAliveTimeout = 60000
  server.listen(0, '127.0.0.1', () => console.log(`listening on ${server.address().port}`))
}

main(process.argv[2])
