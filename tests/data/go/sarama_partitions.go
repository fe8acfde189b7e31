// Answers partition_vectors.py's keys (stdin) with the partition that Sarama's hash partitioner gives each, as big-endian shorts (stdout).
package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"

	"github.com/IBM/sarama"
)

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	partitioner := sarama.NewHashPartitioner("t")
	for {
		var head [2]int32
		if binary.Read(in, binary.BigEndian, &head) != nil {
			return
		}
		key := make([]byte, head[1])
		if _, err := io.ReadFull(in, key); err != nil {
			panic(err)
		}
		chosen, err := partitioner.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, head[0])
		if err != nil {
			panic(err)
		}
		binary.Write(out, binary.BigEndian, uint16(chosen))
	}
}
