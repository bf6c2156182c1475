// kafkajs; see steps.cjs.
'use strict'

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')
const { PARTITIONS, all, bootstrap, byPartition, group, sent, topic, until } = require('./steps.cjs')

const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap, logLevel: logLevel.NOTHING })
const admin = kafka.admin()
const offsetOf = (one) => [one.partition, Number(one.offset)]

async function committed() {
  const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  return byPartition(found.partitions.map(offsetOf))
}

async function groups() {
  return (await admin.listGroups()).groups.some((one) => one.groupId === group)
}

all({
  committed,
  groups,

  async create() {
    await admin.connect()
    await admin.createTopics({
      waitForLeaders: true,
      topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }],
    })
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length
  },

  async produce(first, count, isCompressed) {
    const producer = kafka.producer({ idempotent: true })
    await producer.connect()
    const messages = sent(first, count).map((one) => ({
      ...one,
      timestamp: String(one.timestamp),
      headers: { h: '1' },
    }))
    const compression = isCompressed ? CompressionTypes.GZIP : CompressionTypes.None
    await producer.send({ topic, messages, compression })
    await producer.disconnect()
    return messages.length
  },

  async read(count) {
    const consumer = kafka.consumer({ groupId: group, sessionTimeout: 60_000 })
    const values = new Set()
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ message }) => {
        values.add(message.value.toString())
      },
    })
    await until(() => values.size >= count, `${count} records`)
    await consumer.disconnect() // which commits, and leaves
    return values.size
  },

  async offsets() {
    const found = await admin.fetchTopicOffsets(topic)
    return byPartition(found.map((one) => [one.partition, [Number(one.low), Number(one.high)]]))
  },

  async byTime(timestamp) {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
    return byPartition(found.map(offsetOf))['0']
  },

  async transactions() {
    const producer = kafka.producer({
      idempotent: true,
      maxInFlightRequests: 1,
      transactionalId: `tx-${group}`,
    })
    await producer.connect()
    for (const end of ['commit', 'abort']) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: [{ key: end, value: end }] })
      await transaction.sendOffsets({
        consumerGroupId: group,
        topics: [{ topic, partitions: [{ partition: 0, offset: end === 'commit' ? '7' : '8' }] }],
      })
      await transaction[end]()
    }
    await producer.disconnect()
    return (await committed())['0'] === 7
  },

  async alter() {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    const configEntries = [{ name: 'retention.ms', value: '86400000' }]
    await admin.alterConfigs({ resources: [{ ...resource, configEntries }] })
    const { resources } = await admin.describeConfigs({ resources: [resource] })
    return resources[0].configEntries.find((one) => one.configName === 'retention.ms').configValue
  },

  async deleteGroup() {
    await admin.deleteGroups([group])
    return until(async () => !(await groups()), 'the group is gone')
  },

  async remove() {
    await admin.deleteTopics({ topics: [topic] })
    return until(async () => !(await admin.listTopics()).includes(topic), 'the topic is gone')
  },

  async close() {
    await admin.disconnect()
  },
})
