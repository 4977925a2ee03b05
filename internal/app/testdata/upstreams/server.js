// A server of the kind that is named, for tests: it says in X-Handler which of
// its handlers a request has reached.
//
//   node server.js express|express4|fastify|fastify4|url
'use strict'
const http = require('node:http')

const reached = (res, name) => res.setHeader('X-Handler', name)

function express (name) {
  const app = require(name)()
  app.disable('x-powered-by')
  app.get('/exact', (req, res) => { reached(res, 'exact'); res.end() })
  app.use('/login', (req, res) => { reached(res, 'login'); res.end() })
  app.get('/v1/health', (req, res) => { reached(res, 'health'); res.end() })
  app.use('/v1', (req, res) => { reached(res, 'v1'); res.end() })
  app.use((req, res) => { reached(res, 'other'); res.end() })
  app.use((err, req, res, next) => { res.statusCode = err.status || 500; res.end() })
  return http.createServer(app)
}

async function fastify (name) {
  const app = require(name)()
  for (const [path, handler] of [['/exact', 'exact'], ['/login', 'login'], ['/login/*', 'login'], ['/v1/health', 'health'], ['/v1/*', 'v1']]) {
    app.get(path, (req, reply) => reply.header('X-Handler', handler).send(''))
  }
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
