import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.NativeLong;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.PointerByReference;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;

/** Copies between two GPUs in several threads of Java, by JNA, as copies.py makes them: java -cp jna.jar Copies.java. */
public class Copies {
    static final int THREADS = 4, COPIES = 24;
    static final AtomicLong wrong = new AtomicLong();
    static final AtomicLong[] bytes = {new AtomicLong(), new AtomicLong()};

    interface Cuda extends Library {
        int cudaSetDevice(int device);
        int cudaMalloc(PointerByReference memory, NativeLong bytes);
        int cudaFree(Pointer memory);
        int cudaMemcpy(Pointer dst, byte[] src, NativeLong bytes, int kind);
        int cudaMemcpy(byte[] dst, Pointer src, NativeLong bytes, int kind);
        int cudaMemcpy(Pointer dst, Pointer src, NativeLong bytes, int kind);
        int cudaMemcpyPeer(Pointer dst, int dstDevice, Pointer src, int srcDevice, NativeLong bytes);
        int cudaMemcpyPeerAsync(Pointer dst, int dstDevice, Pointer src, int srcDevice, NativeLong bytes, Pointer stream);
        int cudaDeviceSynchronize();
    }

    static void work(Cuda cuda, int thread) {
        for (int i = 0; i < COPIES; i++) {
            int src = (thread + i) % 2, dst = 1 - src, count = 4096 * (i + 1) + 13 * thread, code = 0;
            byte[] sent = new byte[count], received = new byte[count];
            for (int j = 0; j < count; j++)
                sent[j] = (byte) (j * 7 + thread * 31 + i);
            NativeLong size = new NativeLong(count);
            PointerByReference a = new PointerByReference(), b = new PointerByReference();
            code |= cuda.cudaSetDevice(src) | cuda.cudaMalloc(a, size) | cuda.cudaMemcpy(a.getValue(), sent, size, 1);
            code |= cuda.cudaSetDevice(dst) | cuda.cudaMalloc(b, size);
            if (i % 3 == 0)
                code |= cuda.cudaMemcpyPeer(b.getValue(), dst, a.getValue(), src, size);
            else if (i % 3 == 1)
                code |= cuda.cudaMemcpyPeerAsync(b.getValue(), dst, a.getValue(), src, size, null) | cuda.cudaDeviceSynchronize();
            else
                code |= cuda.cudaMemcpy(b.getValue(), a.getValue(), size, 3);
            code |= cuda.cudaMemcpy(received, b.getValue(), size, 2) | cuda.cudaFree(a.getValue()) | cuda.cudaFree(b.getValue());
            bytes[src].addAndGet(count);
            if (code != 0 || !Arrays.equals(sent, received))
                wrong.incrementAndGet();
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        System.err.println("process " + ProcessHandle.current().pid());
        Cuda cuda = Native.load("libcudart.so.12", Cuda.class);
        Thread[] threads = new Thread[THREADS];
        for (int i = 0; i < THREADS; i++) {
            int number = i;
            threads[i] = new Thread(() -> work(cuda, number));
            threads[i].start();
        }
        for (Thread thread : threads)
            thread.join();
        System.out.println(THREADS + " threads: " + wrong + " wrong");
        for (int src = 0; src < 2; src++)
            System.out.println(src + ">" + (1 - src) + ": " + THREADS * COPIES / 2 + " copies, " + bytes[src] + " bytes");
        System.exit(wrong.get() == 0 ? 0 : 1);
    }
}
