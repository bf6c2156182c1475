// @platformatic/kafka, which takes the latest version of each API; see steps.cjs.
'use strict'

const { PARTITIONS, all, bootstrap, byPartition, group, sent, topic, until } = require('./steps.cjs')

const TOPIC = 2
const COMMITTED_ONLY = 1
const text = (bytes) => bytes?.toString()
const bytes = (value) => Buffer.from(value ?? '')
const serializers = { key: bytes, value: bytes, headerKey: bytes, headerValue: bytes }
const deserializers = { key: text, value: text, headerKey: text, headerValue: text }

async function program() {
  const { Admin, Consumer, Producer } = await import(require.resolve('@platformatic/kafka'))
  const admin = new Admin({ clientId: 'admin', bootstrapBrokers: bootstrap })

  async function committed() {
    const [found] = await admin.listConsumerGroupOffsets({ groups: [group], requireStable: true })
    const { partitions } = found.topics.find((one) => one.name === topic)
    return byPartition(
      partitions.map((one) => [one.partitionIndex, Number(one.committedOffset)]),
    )
  }

  async function offsetsAt(timestamp) {
    const asked = Array.from({ length: PARTITIONS }, (_, at) => ({ partitionIndex: at, timestamp }))
    const [found] = await admin.listOffsets({ topics: [{ name: topic, partitions: asked }] })
    return byPartition(found.partitions.map((one) => [one.partitionIndex, Number(one.offset)]))
  }

  async function groups() {
    return (await admin.listGroups({})).has(group)
  }

  return {
    committed,
    groups,

    async create() {
      await admin.createTopics({ topics: [topic], partitions: PARTITIONS, replicas: 1 })
      const { topics } = await admin.metadata({ topics: [topic] })
      return topics.get(topic).partitions.length
    },

    async produce(first, count, isCompressed) {
      const clientId = 'producer'
      const producer = new Producer({ clientId, bootstrapBrokers: bootstrap, serializers, idempotent: true })
      const messages = sent(first, count).map((one) => ({
        ...one,
        topic,
        timestamp: BigInt(one.timestamp),
        headers: { h: '1' },
      }))
      await producer.send({ messages, compression: isCompressed ? 'gzip' : 'none' })
      await producer.close()
      return messages.length
    },

    async read(count) {
      const consumer = new Consumer({
        clientId: 'consumer',
        groupId: group,
        bootstrapBrokers: bootstrap,
        deserializers,
        isolationLevel: COMMITTED_ONLY,
        sessionTimeout: 60_000,
      })
      const values = new Set()
      const messages = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false })
      for await (const message of messages) {
        values.add(message.value)
        await message.commit()
        if (values.size >= count) break
      }
      await consumer.close(true)
      return values.size
    },

    async offsets() {
      const [first, end] = [await offsetsAt(-2n), await offsetsAt(-1n)]
      return byPartition(Object.keys(first).map((at) => [Number(at), [first[at], end[at]]]))
    },

    async byTime(timestamp) {
      return (await offsetsAt(BigInt(timestamp)))['0']
    },

    async transactions() {
      const producer = new Producer({
        clientId: 'producer',
        bootstrapBrokers: bootstrap,
        serializers,
        idempotent: true,
        transactionalId: `tx-${group}`,
      })
      for (const end of ['commit', 'abort']) {
        const transaction = await producer.beginTransaction()
        await transaction.send({ messages: [{ topic, key: end, value: end }] })
        await transaction[end]()
      }
      await producer.close()
      return true
    },

    async alter() {
      const resource = { resourceType: TOPIC, resourceName: topic }
      const configs = [{ name: 'retention.ms', configOperation: 0, value: '86400000' }]
      await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs }] })
      const asked = { ...resource, configurationKeys: ['retention.ms'] }
      const [found] = await admin.describeConfigs({ resources: [asked] })
      return found.configs[0].value
    },

    async deleteGroup() {
      await admin.deleteGroups({ groups: [group] })
      return until(async () => !(await groups()), 'the group is gone')
    },

    async remove() {
      await admin.deleteTopics({ topics: [topic] })
      return until(async () => !(await admin.listTopics({})).includes(topic), 'the topic is gone')
    },

    async close() {
      await admin.close()
    },
  }
}

program().then(all)
