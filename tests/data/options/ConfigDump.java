import org.apache.kafka.common.config.*;
import java.util.*;
import java.lang.reflect.*;
public class ConfigDump {
  static String s(Object o){ return o==null?"null":o.toString().replace("\n"," ").replace("\t"," "); }
  public static void main(String[] a) throws Exception {
    for (String n: new String[]{"producer.ProducerConfig","consumer.ConsumerConfig","admin.AdminClientConfig"}) {
      Class<?> c; try { c=Class.forName("org.apache.kafka.clients."+n);} catch(ClassNotFoundException e){continue;}
      Object def=null;
      for (Field f: c.getDeclaredFields()) if (Modifier.isStatic(f.getModifiers()) && f.getType().getSimpleName().equals("ConfigDef")) { f.setAccessible(true); def=f.get(null);}
      Class<?> dc = def.getClass();
      Map<String,?> keys=null;
      for (Field f: ConfigDef.class.getDeclaredFields()) if (Map.class.isAssignableFrom(f.getType()) && f.getName().toLowerCase().contains("config")) { f.setAccessible(true); keys=(Map<String,?>)f.get(def); }
      for (Map.Entry<String,?> e: new TreeMap<String,Object>((Map<String,Object>)keys).entrySet()) {
        Object k=e.getValue(); Map<String,Object> v=new HashMap<>();
        for (Field f: k.getClass().getDeclaredFields()) { f.setAccessible(true); v.put(f.getName(), f.get(k)); }
        System.out.println(n.split("\\.")[0]+"\t"+e.getKey()+"\t"+s(v.get("type"))+"\t"+s(v.get("defaultValue"))+"\t"+s(v.get("validator"))+"\t"+s(v.get("importance")));
      }
    }
  }
}
