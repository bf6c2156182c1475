// As steps.py, for clients in JavaScript: BOOTSTRAP TOPIC GROUP are the arguments, and one JSON
// object with an outcome for each step is printed.
'use strict'

const PARTITIONS = 3
const FIRST = 30
const MORE = 3
const T0 = Date.now() - 3_600_000
const PATIENCE_MS = 60_000
const [addresses, topic, group] = process.argv.slice(2)
const bootstrap = addresses.split(',')
const outcomes = {}

async function run(name, ask, ...given) {
  try {
    outcomes[name] = await ask(...given)
  } catch (failure) {
    const causes = (failure.errors ?? []).map((one) => one.message)
    outcomes[name] = [failure.message, ...causes].join('; ')
  }
}

function show() {
  process.stdout.write(`\n${JSON.stringify(outcomes)}\n`, () => process.exit(0))
}

// Partition, timestamp, key and value of the records to produce: so many in each partition.
function sent(first, count) {
  const numbers = Array.from({ length: count }, (_, index) => first + index)
  const places = Array.from({ length: PARTITIONS }, (_, partition) => partition)
  return numbers.flatMap((number) =>
    places.map((partition) => ({
      partition,
      timestamp: T0 + number * 1000,
      key: `key ${number}`,
      value: `${partition}/${number}`,
    })),
  )
}

async function until(ask, what) {
  const deadline = Date.now() + PATIENCE_MS
  for (;;) {
    const answer = await ask()
    if (answer) return answer
    if (Date.now() > deadline) throw new Error(`not within ${PATIENCE_MS} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

function byPartition(pairs) {
  const ordered = [...pairs].sort(([one], [other]) => one - other)
  return Object.fromEntries(ordered.map(([partition, value]) => [String(partition), value]))
}

async function all(program) {
  await run('create', program.create)
  await run('groups before any', program.groups)
  await run('produce', program.produce, 0, FIRST, false)
  await run('read', program.read, FIRST * PARTITIONS)
  await run('committed', program.committed)
  await run('produce more', program.produce, FIRST, MORE, true)
  await run('read again', program.read, MORE * PARTITIONS)
  await run('committed again', program.committed)
  await run('offsets', program.offsets)
  await run('offset by time', program.byTime, T0 + FIRST * 1000)
  await run('groups', program.groups)
  await run('offsets of the group', program.committed)
  await run('transactions', program.transactions)
  await run('alter', program.alter)
  await run('delete the group', program.deleteGroup)
  await run('delete', program.remove)
  await program.close()
  show()
}

module.exports = { PARTITIONS, all, bootstrap, byPartition, group, sent, topic, until }
